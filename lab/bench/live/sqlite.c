// SPDX-License-Identifier: MIT OR Apache-2.0
// Rows in, indexed, selected one by one, updated, sorted.
#include "sqlite3.h"
#include <stdio.h>
#include <stdlib.h>

static sqlite3 *db;

static void run(const char *sql) {
    char *error = 0;
    if (sqlite3_exec(db, sql, 0, 0, &error)) {
        fprintf(stderr, "%s: %s\n", sql, error);
        exit(1);
    }
}

static sqlite3_stmt *prepared(const char *sql) {
    sqlite3_stmt *statement = 0;
    if (sqlite3_prepare_v2(db, sql, -1, &statement, 0)) exit(1);
    return statement;
}

int main(int argc, char **argv) {
    int rows = argc > 1 ? atoi(argv[1]) : 20000;
    long sum = 0;
    char text[32];
    if (sqlite3_open(":memory:", &db)) return 1;
    run("create table t(a integer, b text, c real)");
    run("begin");
    sqlite3_stmt *in = prepared("insert into t values(?, ?, ?)");
    for (int i = 0; i < rows; i++) {
        snprintf(text, sizeof text, "row %ld", i * 7919l % rows);
        sqlite3_bind_int(in, 1, i);
        sqlite3_bind_text(in, 2, text, -1, SQLITE_TRANSIENT);
        sqlite3_bind_double(in, 3, i * 0.5);
        sqlite3_step(in);
        sqlite3_reset(in);
    }
    sqlite3_finalize(in);
    run("commit");
    run("create index i on t(b)");
    sqlite3_stmt *one = prepared("select a from t where b = ?");
    for (int i = 0; i < rows; i++) {
        snprintf(text, sizeof text, "row %d", i);
        sqlite3_bind_text(one, 1, text, -1, SQLITE_TRANSIENT);
        while (sqlite3_step(one) == SQLITE_ROW) sum += sqlite3_column_int(one, 0);
        sqlite3_reset(one);
    }
    sqlite3_finalize(one);
    run("update t set c = c + a where a % 3 = 0");
    sqlite3_stmt *sorted = prepared("select b from t order by c desc, b");
    while (sqlite3_step(sorted) == SQLITE_ROW) sum += sqlite3_column_bytes(sorted, 0);
    sqlite3_finalize(sorted);
    printf("%ld\n", sum);
    return sqlite3_close(db);
}
