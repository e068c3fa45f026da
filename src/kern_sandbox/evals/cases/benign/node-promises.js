// Waits for promises and timers in Node.
//> [ 1, 2 ]
const later = (x) => new Promise((done) => setTimeout(() => done(x), 5));
Promise.all([later(1), later(2)]).then((all) => console.log(all));
