// Starts a plan, approves it and prints its result: the Go SDK and JSON, no code of the engine.
//
//	TEMPORAL_ADDRESS=127.0.0.1:7233 go run ./client ../request.json order-17
//
// While the run waits or runs, a second start with the same id uses it, and starts no other one.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"

	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: client REQUEST ID")
	}
	if err := run(context.Background(), os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, file, id string) error {
	request, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	// TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, TEMPORAL_API_KEY … as in every Temporal SDK
	c, err := client.Dial(envconfig.MustLoadDefaultClientOptions())
	if err != nil {
		return err
	}
	defer c.Close()
	queue := os.Getenv("ACTS_TASK_QUEUE")
	if queue == "" {
		queue = "acts"
	}
	options := client.StartWorkflowOptions{
		ID:                       id,
		TaskQueue:                queue,
		WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
	}
	// RawMessage: the JSON as it is, numbers and order of keys included
	started, err := c.ExecuteWorkflow(ctx, options, "Plan", json.RawMessage(request))
	if err != nil {
		return err
	}
	update, err := c.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID:   id,
		UpdateName:   "decide",
		Args:         []any{map[string]string{"decision": "approve", "by": "a client"}},
		WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err != nil {
		return err
	}
	var status struct {
		Phase string `json:"phase"`
	}
	if err := update.Get(ctx, &status); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "approved; the plan is %s\n", status.Phase)
	var result json.RawMessage
	if err := started.Get(ctx, &result); err != nil {
		return err
	}
	fmt.Println(string(result))
	return nil
}
