// Lets Node connect to a service on the host's loopback.
const net = require("net");
const one = net.connect(stage.tcp, "127.0.0.1", () => one.end(stage.token));
one.on("error", (error) => console.log(error.code));
