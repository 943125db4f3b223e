// Serves the tool `factorize` on a task queue of its own: the Go SDK alone, no code of the engine.
//
//	TEMPORAL_ADDRESS=127.0.0.1:7233 go run ./worker
//
// The tool names this queue in its `_options.taskQueue`. A tool that waits, or computes for long, sends heartbeats
// (`activity.RecordHeartbeat`) and names a `heartbeat` in its `_options`.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.temporal.io/sdk/worker"
)

type call struct {
	ID     string `json:"_id"` // the same on every attempt: the key for effects that must happen once
	Number int64  `json:"number"`
}

type answer struct {
	Number  int64   `json:"number"`
	Factors []int64 `json:"factors"`
}

// An activity takes the Call, its Tool and the scopes that the plan shows it, and returns JSON.
func factorize(_ context.Context, c call, _ any, _ []any) (answer, error) {
	factors, rest := []int64{}, c.Number
	for divisor := int64(2); divisor*divisor <= rest; divisor++ {
		for ; rest%divisor == 0; rest /= divisor {
			factors = append(factors, divisor)
		}
	}
	if rest > 1 {
		factors = append(factors, rest)
	}
	return answer{c.Number, factors}, nil
}

func main() {
	c, err := client.Dial(envconfig.MustLoadDefaultClientOptions())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	queue := os.Getenv("TASK_QUEUE")
	if queue == "" {
		queue = "examples-clients"
	}
	w := worker.New(c, queue, worker.Options{})
	w.RegisterActivityWithOptions(factorize, activity.RegisterOptions{Name: "factorize"})
	fmt.Println("serving", queue)
	// Until Ctrl-C or SIGTERM; running activities end first
	if err := w.Run(worker.InterruptCh()); err != nil {
		log.Fatal(err)
	}
}
