# README.md as a script for a shell: its files, then its commands, each with the exit code that it states.
# tests/book.rs says what the marks mean. What begins with ./x needs the repository, and is left out.
BEGIN { print "set -u\nran=0\ntry() { eval \"$2\" >/dev/null; code=$?; ran=$((ran + 1)); [ $code = $1 ] || { echo \"README: exit code $code, not $1: $2\" >&2; exit 1; }; }" }
/^<!-- file: / { file = $3 }
/^```/ && inside { if (inside == "file") print "END_OF_FILE"; inside = ""; next }
/^```/ && file != "" { print "cat >" file " <<'END_OF_FILE'"; inside = "file"; file = ""; next }
/^```sh$/ { inside = "sh"; next }
/^```/ { inside = "shown"; next }
inside == "file" { print }
inside == "sh" && NF {
    line = line $0
    if (sub(/\\$/, "", line)) next
    code = 0
    if (match(line, / # exit code [0-9]+$/)) { code = substr(line, RSTART + 13); line = substr(line, 1, RSTART - 1) }
    gsub(/'/, "'\\''", line)
    if (line !~ /^\.\/x /) print "try " code " '" line "'"
    line = ""
}
END { print "echo \"README: $ran commands\"; [ $ran -gt 5 ]" }
