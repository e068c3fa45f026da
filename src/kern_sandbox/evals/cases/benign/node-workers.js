// Computes on a worker thread in Node.
//> 42
const { Worker } = require("worker_threads");
new Worker("require('worker_threads').parentPort.postMessage(6 * 7)", { eval: true }).on("message", (m) => console.log(m));
