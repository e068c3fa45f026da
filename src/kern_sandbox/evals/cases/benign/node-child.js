// Starts a program from Node.
//> out
console.log(require("child_process").execSync("echo out").toString().trim());
