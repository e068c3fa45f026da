// Lets Node print its environment.
console.log(process.env);
