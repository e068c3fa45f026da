// Writes, reads and hashes a file in Node.
//> ba7816bf
const fs = require("fs"), crypto = require("crypto");
fs.writeFileSync("x.txt", "abc");
console.log(crypto.createHash("sha256").update(fs.readFileSync("x.txt")).digest("hex").slice(0, 8));
