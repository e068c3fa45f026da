// Serves and asks over its own loopback in Node.
//> ok
const http = require("http");
const server = http.createServer((_, r) => r.end("ok")).listen(0, "127.0.0.1", () =>
  http.get({ port: server.address().port, host: "127.0.0.1" }, (r) => r.on("data", (d) => console.log(String(d))).on("end", () => server.close())));
