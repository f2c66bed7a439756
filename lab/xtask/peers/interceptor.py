# SPDX-License-Identifier: MIT OR Apache-2.0
"""interceptor.py COUNTS FUNCTIONS ENTRIES HAMMERED PROGRAM [WORD ...]: run a program with frida's interceptor at its functions, whose
handlers count their calls in the file COUNTS; at their entries alone if ENTRIES is 1. Attach and detach all the time if HAMMERED is 1.
Ends as the program does."""

import json
import os
import signal
import sys

import frida

AGENT = """
const {counts: path, names, entries, hammered} = SETTINGS;
const libc = Process.getModuleByName('libc.so.6');
const call = (name, result, words) => new NativeFunction(libc.getExportByName(name), result, words);
const file = call('open', 'int', ['pointer', 'int'])(Memory.allocUtf8String(path), 2);
const counts = call('mmap', 'pointer', ['pointer', 'size_t', 'int', 'int', 'int', 'int64'])(NULL, 4096, 3, 1, file, 0);
call('close', 'int', ['int'])(file);
const handlers = new CModule(`
#include <glib.h>
#include <gum/guminterceptor.h>
void onEnter(GumInvocationContext *ic) { g_atomic_int_add(GUM_IC_GET_FUNC_DATA(ic, gint *), 1); }
void onLeave(GumInvocationContext *ic) {}
`);
const attached = {};

function attach(name, module) {
  const address = module ? module.findExportByName(name) : Module.findGlobalExportByName(name);
  if (attached[name] || !address)
    return;
  try {
    attached[name] = Interceptor.attach(address, entries ? handlers.onEnter : handlers, counts.add(8 * names.indexOf(name)));
  } catch (e) {
    send(`refused ${name}: ${e.message}`);
    attached[name] = {detach() {}};
  }
}

function detach(name) {
  attached[name]?.detach();
  delete attached[name];
}

function change() {
  names.forEach(detach);
  Interceptor.flush();
  names.forEach(name => attach(name));
  Interceptor.flush();
}

Process.attachModuleObserver({
  onAdded(module) { names.forEach(name => attach(name, module)); },
  onRemoved(module) { names.filter(name => module.findExportByName(name)).forEach(detach); }
});
change();
if (hammered)
  setInterval(change, 1);
"""


def main():
    counts, names, entries, hammered, *program = sys.argv[1:]
    settings = {"counts": counts, "names": names.split(":"), "entries": entries == "1", "hammered": hammered == "1"}
    said = set()
    pid = frida.get_local_device().spawn(program, stdio="inherit")
    script = frida.attach(pid).create_script(AGENT.replace("SETTINGS", json.dumps(settings)))
    script.on("message", lambda message, _: said.add(message.get("payload") or message["description"]))
    script.load()
    frida.resume(pid)
    try:
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        # A thread of frida was faster.
        print("peers: unseen", file=sys.stderr)
        status = 0
    for line in sorted(said):
        print("peers:", line, file=sys.stderr)
    sys.stderr.flush()
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


main()
