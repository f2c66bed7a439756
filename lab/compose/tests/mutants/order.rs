#[rustfmt::skip]
const ORDER: &[Mutant] = &[
    ("the words of a frame are stored above the end", "task.rs",
        "        self.top.set((start + FRAME) as u64);\n        at.set(ret);\n        own.set(func);\n", "        at.set(ret);\n        own.set(func);\n        self.top.set((start + FRAME) as u64);\n"),
    ("a frame is linked above the end", "task.rs",
        "        self.top.set((start + FRAME) as u64);\n        at.set(ret);\n        own.set(func);\n        place.set(retp);\n        link.set(self.frame.get());\n", "        link.set(self.frame.get());\n        self.top.set((start + FRAME) as u64);\n        at.set(ret);\n        own.set(func);\n        place.set(retp);\n"),
    ("a frame is popped before the older one is the latest", "task.rs",
        "        self.frame.set(frame.link().older() as u64);\n        self.top.set(frame.start as u64);\n", "        self.top.set(frame.start as u64);\n        self.frame.set(frame.link().older() as u64);\n"),
    ("data are stored above the end", "task.rs",
        "        self.top.set((end + 1 + words) as u64);\n        header.set((owner << OWNER | words) as u64);\n", "        header.set((owner << OWNER | words) as u64);\n        self.top.set((end + 1 + words) as u64);\n"),
    ("an interrupt lets go of the guard that it interrupted", "task.rs",
        "        self.0.guard().set(0);\n", "        self.0.guards.iter().for_each(|guard| guard.set(0));\n"),
    ("a user can be found before its functions are there", "graph.rs",
        "        self.fill(&self.graph.filters, slot, ops.filter, ops.notrace);\n        self.graph.publish(slot, self.tick());\n", "        self.graph.publish(slot, self.tick());\n        self.fill(&self.graph.filters, slot, ops.filter, ops.notrace);\n"),
    ("a node is pending before it leads to the next one", "kretprobe.rs",
        "            node.next.set(task.pending.get());\n            task.pending.set(index);\n", "            let next = task.pending.get();\n            task.pending.set(index);\n            node.next.set(next);\n"),
    ("a node is free before the next one is the latest", "kretprobe.rs",
        "        task.pending.set(node.next.get());\n        node.owner.set(0);\n        Some(ret)\n", "        node.owner.set(0);\n        task.pending.set(node.next.get());\n        Some(ret)\n"),
];
