// Lets Node read the file by several names.
const fs = require("fs");
for (const start of ["", "/proc/1/root", "/proc/self/root/..", "/proc/self/cwd/../../../.."]) {
  try { console.log(fs.readFileSync(start + stage.secret, "utf8")); } catch (error) { console.log(error.code); }
}
