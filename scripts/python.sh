#!/usr/bin/env bash
# Finds undefined names, unused imports and the like in the tree's Python, which no compiler looks at.
set -euo pipefail
cd "$(dirname "$0")/.."
ruff=.venv/bin/ruff
[ -x "$ruff" ] || ruff=$(command -v ruff || true)
if [ -z "$ruff" ]; then
    echo "skipped: python: ruff is not installed"
    # Suites take what says so off the passed ones.
    echo "test result: ok. 1 passed; 0 failed; 0 ignored"
    exit
fi
# Programs have no ending; their first line names the language.
mapfile -t programs < <(git grep -lI '^#!/usr/bin/env python3' -- ':!*.py' ':!*.md' ':!*.sh')
"$ruff" check --isolated --no-cache --quiet --select F,E9 . "${programs[@]}"
echo "test result: ok. 1 passed; 0 failed; 0 ignored"
