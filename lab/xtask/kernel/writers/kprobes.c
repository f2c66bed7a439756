// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Has a kernel of arm64 or riscv64 prepare kprobes at instructions: those that do the same anywhere are copied, with a breakpoint behind
 * them; those that depend on where they are stay, and others are refused. A line on stdout is a kind of probe for which that is not so.
 */
#include "told.h"

#include "kprobes.h"

typedef unsigned long addr;

static unsigned int function[64] __attribute__((aligned(64))), slots[16];
static unsigned long runs;

/* What the kernel's files call. */
void *__get_insn_slot(void *cache) { (void)cache; return slots; }
void __free_insn_slot(void *cache, void *slot, int dirty) { (void)cache, (void)slot, (void)dirty; }
void *search_exception_tables(addr at) { (void)at; return NULL; }
const char *kallsyms_lookup_size_offset(addr at, addr *size, addr *offset)
{
	if (size)
		*size = sizeof(function);
	if (at - (addr)function >= sizeof(function))
		return NULL;
	*offset = at - (addr)function;
	return "function";
}
int patch_text_nosync(void *at, const void *insn, size_t size) { memcpy(at, insn, size); return 0; }
int aarch64_insn_patch_text_nosync(void *at, unsigned int insn) { memcpy(at, &insn, 4); return 0; }

enum how { MOVES, STAYS, REFUSED };

/*
 * By the architecture's manual, what an instruction does depends on where it is, or not. Of those that do not, some are refused: what
 * changes the state of the CPU, and what belongs to others. The kernel refuses more of them, and then so it is here.
 */
static const struct insn {
	unsigned int word;
	enum how how;
	const char *text;
} insns[] = {
#ifdef __aarch64__
#define NOP 0xd503201f
	{ 0x91000420, MOVES, "add x0, x1, #1" }, { 0xf9400020, MOVES, "ldr x0, [x1]" }, { 0xa9bf7bfd, MOVES, "stp x29, x30, [sp, #-16]!" },
	{ 0xd503233f, MOVES, "paciasp" }, { 0xd503245f, MOVES, "bti c" }, { 0xd2800020, MOVES, "mov x0, #1" }, { 0x14000001, STAYS, "b" },
	{ 0x94000001, STAYS, "bl" }, { 0x54000020, STAYS, "b.eq" }, { 0x54000030, STAYS, "bc.eq" }, { 0xb4000020, STAYS, "cbz" },
	{ 0xb5000020, STAYS, "cbnz" }, { 0x36000020, STAYS, "tbz" }, { 0x37000020, STAYS, "tbnz" }, { 0x10000000, STAYS, "adr" },
	{ 0x90000000, STAYS, "adrp" }, { 0x58000020, STAYS, "ldr x0, literal" }, { 0x98000020, STAYS, "ldrsw x0, literal" },
	{ 0xd61f0000, STAYS, "br x0" }, { 0xd63f0000, STAYS, "blr x0" }, { 0xd65f03c0, STAYS, "ret" }, { 0xd4000001, REFUSED, "svc" },
	{ 0xd4200000, REFUSED, "brk" }, { 0xd69f03e0, REFUSED, "eret" }, { 0xc85f7c20, REFUSED, "ldxr" }, { 0xc8007c20, REFUSED, "stxr" },
	{ 0xd51b4200, REFUSED, "msr nzcv, x0" }, { 0xd50342df, REFUSED, "msr daifset, #2" }, { 0x19000400, REFUSED, "cpyfp" },
	{ 0x19c00400, REFUSED, "setp" }, { 0x1c000020, REFUSED, "vector load, literal: s0" }, { 0x5c000020, REFUSED, "vector load, literal: d0" },
	{ 0x9c000020, REFUSED, "vector load, literal: q0" }, { 0xd8000020, REFUSED, "prfm, literal" },
#else
#define NOP 0x00000013
	{ 0x00150513, MOVES, "addi a0, a0, 1" }, { 0x0005b503, MOVES, "ld a0, 0(a1)" }, { 0x00a5b023, MOVES, "sd a0, 0(a1)" },
	{ 0x00b50533, MOVES, "add a0, a0, a1" }, { 0x000015b7, MOVES, "lui a1, 1" }, { 0x02b50533, MOVES, "mul a0, a0, a1" },
	{ 0x00010505, MOVES, "c.addi a0, 1" }, { 0x00000517, STAYS, "auipc a0, 0" }, { 0x004000ef, STAYS, "jal" },
	{ 0x000500e7, STAYS, "jalr a0" }, { 0x00b50463, STAYS, "beq" }, { 0x00b51463, STAYS, "bne" }, { 0x00000073, REFUSED, "ecall" },
	{ 0x00100073, REFUSED, "ebreak" }, { 0x0ff0000f, REFUSED, "fence" }, { 0x0000100f, REFUSED, "fence.i" },
	{ 0x10002573, REFUSED, "csrr a0, sstatus" }, { 0x10200073, REFUSED, "sret" },
#endif
};

static bool is_breakpoint(const void *at)
{
	unsigned int word;

	memcpy(&word, at, 4);
#ifdef __aarch64__
	return (word & 0xffe0001f) == 0xd4200000;
#else
	return word == 0x00100073;
#endif
}

static size_t size_of(unsigned int word)
{
#ifdef __aarch64__
	(void)word;
	return 4;
#else
	return (word & 3) == 3 ? 4 : 2;
#endif
}

static enum how prepared_at(addr at)
{
	struct prepared probe;
	size_t size = size_of(*(unsigned int *)at);

	runs++;
	memset(slots, 0, sizeof(slots));
	probe = prepare(at);
	if (probe.error)
		return REFUSED;
	if (!probe.slot)
		return STAYS;
	if (memcmp(slots, (void *)at, size))
		wrong("another instruction is copied");
	if (!is_breakpoint((char *)slots + size))
		wrong("behind the copy is no breakpoint");
	if (probe.behind != at + size)
		wrong("control goes on elsewhere");
	return MOVES;
}

static void expect(unsigned int word, enum how how, const char *text)
{
	static const char *const names[] = { "copied", "left where it is", "refused" };
	enum how found;

	told = false;
	sprintf(told_as, "%s", text);
	for (int i = 0; i < 64; i++)
		function[i] = NOP;
	function[4] = word;
	found = prepared_at((addr)&function[4]);
	if (found != how)
		wrong("%s is %s, not %s", text, names[found], names[how]);
	if (size_of(word) == 4 && prepared_at((addr)&function[4] + 2) != REFUSED)
		wrong("a probe may be within an instruction");
}

int main(void)
{
	for (unsigned int i = 0; i < sizeof(insns) / sizeof(*insns); i++)
		expect(insns[i].word, insns[i].how, insns[i].text);
#ifdef __aarch64__
	/* Between LDXR and STXR a breakpoint makes the store fail for ever. */
	told = false;
	sprintf(told_as, "ldxr, add, stxr");
	function[3] = 0xc85f7c20;
	function[4] = 0x91000420;
	function[5] = 0xc8007c20;
	if (prepared_at((addr)&function[4]) != REFUSED)
		wrong("a probe may be between a load and a store that belong together");
	function[6] = 0x91000420;
	if (prepared_at((addr)&function[6]) != MOVES)
		wrong("a probe may not be behind them");
#endif
	return told_all(runs, "probes");
}
