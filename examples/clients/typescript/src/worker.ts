// Serves the tool `factorize` on a task queue of its own: the TypeScript SDK alone, no code of the engine.
//
//   TEMPORAL_ADDRESS=127.0.0.1:7233 node dist/worker.js
//
// The tool names this queue in its `_options.taskQueue`. A tool that waits, or computes for long, sends heartbeats
// (`heartbeat()` of @temporalio/activity) and names a `heartbeat` in its `_options`.
import { NativeConnection, Worker } from '@temporalio/worker';
import { loadClientConnectConfig } from '@temporalio/envconfig';

interface Call {
  _id: string; // the same on every attempt: the key for effects that must happen once
  _tool: string;
  number: number;
}

// An activity takes the Call, its Tool and the scopes that the plan shows it, and returns JSON.
async function factorize(call: Call, _tool: unknown, _context: unknown[]): Promise<object> {
  const factors: number[] = [];
  let rest = call.number;
  for (let divisor = 2; divisor * divisor <= rest; divisor++) {
    for (; rest % divisor === 0; rest /= divisor) {
      factors.push(divisor);
    }
  }
  return { number: call.number, factors: rest > 1 ? [...factors, rest] : factors };
}

const config = loadClientConnectConfig();
const connection = await NativeConnection.connect(config.connectionOptions);
const taskQueue = process.env.TASK_QUEUE ?? 'examples-clients';
const worker = await Worker.create({ connection, namespace: config.namespace, taskQueue, activities: { factorize } });
console.log(`serving ${taskQueue}`);
await worker.run(); // until Ctrl-C or SIGTERM; running activities end first
await connection.close();
