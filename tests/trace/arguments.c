// SPDX-License-Identifier: MIT OR Apache-2.0
// A program in C and C++ that says how its functions are called, as `tramptool trace replay` has to say it: ? stands for what is in no
// register of its own, in no general one, or behind the sixth.
#include <stdbool.h>
#include <stdio.h>

#define CALLED __attribute__((noinline, noclone))

enum color { RED = -1, BLUE = 3 };
typedef const unsigned char octet;
struct two { int a, b; };
struct pair { struct two first; double second; };
struct big { long a[5]; };
union either { long a; double b; };

#ifdef __cplusplus
extern "C" {
#endif

CALLED signed char twice(signed char n) {
    signed char result = (signed char)(2 * n);
    printf("twice(n=%d) = %d;\n", n, result);
    return result;
}
CALLED unsigned short many(long a, short b, octet c, bool d, const char *e, enum color f, long g) {
    unsigned short result = (unsigned short)(a + b + c + d + f + g);
    printf("many(a=%ld, b=%d, c=%u, d=%s, e=%p, f=%d, g=?) = %u;\n", a, b, c, d ? "true" : "false", (const void *)e, f, result);
    return result;
}
CALLED double scale(double x, int n, float y, unsigned long long m) {
    printf("scale(x=?, n=%d, y=?, m=%llu);\n", n, m);
    return x * n + y;
}
CALLED long passed(struct two s, int n, struct pair t, int m) {
    printf("passed(s=?, n=%d, t=?, m=%d) = %d;\n", n, m, s.a + s.b + n + m);
    return s.a + s.b + n + m + (long)t.second - (long)t.second;
}
CALLED struct big made(int n) {
    struct big result = {{n}};
    printf("made(n=%d);\n", n);
    return result;
}
CALLED int behind(int n, struct big s, int m, int k) {
    printf("behind(n=%d, s=?, m=?, k=?) = %d;\n", n, n + m + k);
    return n + m + k + (int)(s.a[1] - s.a[1]);
}
CALLED int united(union either a, int n) {
    printf("united(a=?, n=?) = %d;\n", n);
    return a.a ? n : -n;
}
CALLED bool wide(__int128 a, int n) {
#ifdef __clang__
    printf("wide(a=?, n=?) = true;\n");
#else
    printf("wide(a=?, n=%d) = true;\n", n);
#endif
    return a > n;
}
CALLED void *variable(int n, ...) {
    printf("variable(n=%d) = 0xfffffffffffffff0;\n", n);
    return (void *)-16;
}
CALLED void nothing(void) { printf("nothing();\n"); }

#ifdef __cplusplus
}

struct Owner {
    int a;
    Owner(int a) : a(a) {}
    Owner(const Owner &other) : a(other.a) {}
};
extern "C" CALLED int owned(const Owner &o, Owner p, int n) {
    printf("owned(o=%p, p=?, n=?) = %d;\n", (const void *)&o, n);
    return p.a ? n : 0;
}
extern "C" CALLED Owner owns(int n) {
    printf("owns(n=?);\n");
    return Owner(n);
}
static int more() {
    Owner one(1);
    return owned(one, one, 4) + owns(5).a;
}
#else
CALLED int old(a, b) char a; int b; {
    printf("old(?);\n");
    return a + b;
}
static int more(void) { return old(1, 2); }
#endif

int main(void) {
    struct two two = {1, 2};
    struct pair pair = {{3, 4}, 2.5};
    struct big big = {{1, 2}};
    union either either = {1};
    twice(-100);
    many(-5, -6, 250, true, "text", RED, 7);
    scale(1.5, -3, 2, 1ull << 63);
    passed(two, -9, pair, 10);
    made(77);
    behind(6, big, 7, 8);
    united(either, 8);
    wide(1ll << 40, 9);
    variable(-4, 1.0);
    nothing();
    return more() ? 0 : 1;
}
