// Preloaded into Azurite: its clock is the machine's plus the milliseconds of the file `clock` beside its data, which
// is read at SIGUSR2, so that leases of 15 s end when a test says so.
"use strict";
const fs = require("fs");
const path = require("path");
const file = path.join(path.dirname(process.argv[process.argv.indexOf("--location") + 1]), "clock");
const Real = Date;
let shift = fs.existsSync(file) ? Number(fs.readFileSync(file, "utf8")) : 0;
process.on("SIGUSR2", () => {
  shift = Number(fs.readFileSync(file, "utf8"));
  fs.writeFileSync(file + ".done", String(shift));
});
globalThis.Date = class extends Real {
  constructor(...given) {
    if (given.length) super(...given);
    else super(Real.now() + shift);
  }
  static now() {
    return Real.now() + shift;
  }
};
