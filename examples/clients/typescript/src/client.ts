// Starts a plan, approves it and prints its result: the TypeScript SDK and JSON, no code of the engine.
//
//   TEMPORAL_ADDRESS=127.0.0.1:7233 node dist/client.js ../request.json order-17
//
// While the run waits or runs, a second start with the same id uses it, and starts no other one.
import { readFile } from 'node:fs/promises';
import { Client, Connection } from '@temporalio/client';
import { loadClientConnectConfig } from '@temporalio/envconfig';

interface Status {
  phase: string;
}

const [file, runId] = process.argv.slice(2);
if (!file || !runId) {
  throw new Error('usage: client.js REQUEST ID');
}
// TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, TEMPORAL_API_KEY … as in every Temporal SDK
const config = loadClientConnectConfig();
const connection = await Connection.connect(config.connectionOptions);
const client = new Client({ connection, namespace: config.namespace });

const handle = await client.workflow.start('Plan', {
  args: [JSON.parse(await readFile(file, 'utf-8'))],
  workflowId: runId,
  taskQueue: process.env.ACTS_TASK_QUEUE ?? 'acts',
  workflowIdConflictPolicy: 'USE_EXISTING',
});
const status = await handle.executeUpdate<Status, [object]>('decide', {
  args: [{ decision: 'approve', by: 'a client' }],
});
console.error(`approved; the plan is ${status.phase}`);
console.log(JSON.stringify(await handle.result()));
await connection.close();
