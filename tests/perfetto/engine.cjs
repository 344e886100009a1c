// Runs the trace processor that the Perfetto UI runs in a worker, and speaks its protocol over pipes.
//
//     node engine.cjs FOLDER        FOLDER has engine_bundle.js and trace_processor.wasm
//
// stdin: TraceProcessorRpcStream messages; stdout: the answers, framed alike. The bundle finds what a worker
// has: `self`, a port, XMLHttpRequest; but no `process`, so that it does not take this for Node.js.
'use strict';

const fs = require('fs');
const path = require('path');
const vm = require('vm');

const folder = process.argv[2];

function say(...words) {
  // The text of a bundle's line is a megabyte.
  process.stderr.write(words.join(' ').split('\n').map((line) => line.slice(0, 400)).join('\n') + '\n');
}

function fail(error) {
  say(`${error && error.name}: ${error && error.message}`, String(error && error.stack).slice(-2000));
  process.exit(1);
}
process.on('uncaughtException', fail);
process.on('unhandledRejection', fail);

class XMLHttpRequest {
  open(method, name) { this.name = path.basename(String(name)); }
  send() {
    const data = fs.readFileSync(path.join(folder, this.name));
    this.response = data.buffer.slice(data.byteOffset, data.byteOffset + data.byteLength);
  }
}

const worker = {
  console: {log: say, warn: say, error: say},
  location: {href: 'http://localhost/engine_bundle.js'},
  navigator: {hardwareConcurrency: 1, language: 'en'},
  performance, setTimeout, clearTimeout, TextDecoder, TextEncoder, URL, XMLHttpRequest,
  crypto: globalThis.crypto, WorkerGlobalScope: class {}, importScripts: () => {},
  WebAssembly, Uint8Array, ArrayBuffer, TypeError, // it asks for them with `instanceof`
};
worker.self = worker;
vm.createContext(worker);
const source = fs.readFileSync(path.join(folder, 'engine_bundle.js'), 'utf8');
vm.runInContext(source, worker, {filename: 'engine_bundle.js'});

function postMessage(data) {
  for (let at = 0; at < data.length;) {
    try {
      at += fs.writeSync(1, data, at, data.length - at);
    } catch (error) {
      if (error.code !== 'EAGAIN') throw error; // a pipe that is full
    }
  }
}
const port = {postMessage};

// The engine is compiled by now; what its promise does comes before this.
setImmediate(() => {
  worker.onmessage({data: port});
  process.stdin.on('data', (data) => port.onmessage({data: new Uint8Array(data)}));
  process.stdin.on('end', () => process.exit(0));
});
