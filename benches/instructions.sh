#!/usr/bin/env bash
# Instructions of each hot path, counted by callgrind, written to benches/INSTRUCTIONS.md. Called by `make instructions`.
# A path runs 200 and 1200 times; what the second run takes more, by 1000, is one time. Set-up cancels out.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v valgrind >/dev/null || { echo "missing tool: valgrind" >&2; exit 1; }
build=$(cargo bench --quiet --bench instructions --no-run --message-format=json |
    sed -n 's/.*"name":"instructions".*"executable":"\([^"]*\)".*/\1/p')
[ -x "$build" ] || { echo "the bench 'instructions' was not built" >&2; exit 1; }

count() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$build" "$1" "$2" 2>&1 | sed -n 's/.*Collected : \([0-9]*\).*/\1/p'
}

out=benches/INSTRUCTIONS.md
{
    echo "# Instructions of the hot paths"
    echo
    echo "One message each unless it says otherwise; counted by callgrind: \`make instructions\` writes this table."
    echo
    echo "| path | instructions |"
    echo "|---|---|"
} > "$out.new"
number=0
while IFS= read -r name; do
    few=$(count "$number" 200)
    many=$(count "$number" 1200)
    printf '| %s | %d |\n' "$name" $(((many - few) / 1000)) | tee -a "$out.new"
    number=$((number + 1))
done < <("$build" list)
mv "$out.new" "$out"
