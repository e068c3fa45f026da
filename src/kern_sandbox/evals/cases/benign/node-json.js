// Sorts objects in Node.
//> [{"n":1},{"n":2}]
console.log(JSON.stringify([{ n: 2 }, { n: 1 }].sort((a, b) => a.n - b.n)));
