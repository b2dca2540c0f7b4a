# SPDX-License-Identifier: Apache-2.0
# Sourced by ./test: runs stages, keeps their minutes and what they counted, and closes the run.
# shellcheck shell=bash

: "${root:?the folder of the repository}"
: "${build_root:?the folder of the builds}"
jobs=$(nproc)
stage_names=()
stage_seconds=()
stage_results=()
tests_run=0
tests_failed=0
tests_skipped=0

# stage NAME COMMAND...: runs COMMAND; a failure is kept for the end of the run. A stage that counted no test of its
# own counts as one.
stage() {
  local name=$1 result=passed
  shift
  local before=$tests_run failed_before=$tests_failed start=$SECONDS
  printf '\n==== %s\n' "$name"
  if ! "$@"; then
    result=FAILED
    printf '==== FAILED: %s\n' "$name"
  fi
  if ((tests_run == before)); then
    count 1 0 0
  fi
  if [[ $result == FAILED && $tests_failed == "$failed_before" ]]; then
    count 0 1 0
  fi
  stage_names+=("$name")
  stage_seconds+=($((SECONDS - start)))
  stage_results+=("$result")
}

# count RUN FAILED SKIPPED
count() {
  tests_run=$((tests_run + $1))
  tests_failed=$((tests_failed + $2))
  tests_skipped=$((tests_skipped + $3))
}

# close_run: the table of minutes, then the line that ctest closes with, over all stages.
close_run() {
  local i total=0 names_failed=""
  printf '\n%-40s %8s  %s\n' stage minutes result
  for i in "${!stage_names[@]}"; do
    printf '%-40s %5d:%02d  %s\n' "${stage_names[i]}" $((stage_seconds[i] / 60)) $((stage_seconds[i] % 60)) \
      "${stage_results[i]}"
    total=$((total + stage_seconds[i]))
    [[ ${stage_results[i]} == passed ]] || names_failed+="${names_failed:+, }${stage_names[i]}"
  done
  printf '%-40s %5d:%02d\n\n' total $((total / 60)) $((total % 60))
  ((tests_skipped == 0)) || printf '%d tests skipped, with their reasons above\n' "$tests_skipped"
  [[ -z $names_failed ]] || printf 'FAILED: %s\n' "$names_failed"
  local percent=$((tests_run > 0 ? (tests_run - tests_failed) * 100 / tests_run : 0))
  printf '%d%% tests passed, %d tests failed out of %d\n' "$percent" "$tests_failed" "$tests_run"
  if [[ $tests_failed == 0 && -z $names_failed && $tests_run -gt 0 ]]; then
    exit 0
  fi
  exit 1
}

# ninja_build PRESET TARGETS...
ninja_build() {
  local preset=$1
  shift
  cmake --build "$build_root/$preset" --target "$@" || {
    say "the line that failed: cmake --build '$build_root/$preset' --target $*"
    return 1
  }
}

# check_stage COMMAND...: a check that is no ctest case; it counts as one test.
check_stage() {
  if "$@"; then
    count 1 0 0
    return 0
  fi
  count 1 1 0
  return 1
}

# ctest_stage PRESET OPTIONS...: runs ctest in that build and adds its closing line to the totals.
ctest_stage() {
  local dir="$build_root/$1" log status=0
  shift
  log="$dir/ctest.log"
  (cd "$dir" && ctest -j "$jobs" --output-on-failure --no-tests=error --timeout 900 "$@") 2>&1 |
    tee "$log" | sed -E '/^(test [0-9]+|      Start )/d; / Passed +[0-9.]+ sec$/d' || status=1
  local failed run skipped
  # "97% tests passed, 3 tests failed out of 100"
  read -r failed run < <(sed -nE 's/^[0-9]+% tests passed, ([0-9]+) tests? failed out of ([0-9]+)$/\1 \2/p' "$log")
  if [[ -z ${run:-} ]]; then
    return 1
  fi
  skipped=$(grep -cE '\*\*\*Skipped' "$log" || true)
  count "$run" "$failed" "$skipped"
  # A test that was never built is listed as not run, and fails the stage like any other.
  return "$status"
}

# seeds_for NAME: the folder of tests/fuzz/corpus for the target fuzz_NAME: the same name, or its beginning.
seeds_for() {
  local folder
  for folder in "$root"/tests/fuzz/corpus/*/; do
    folder=${folder%/}
    if [[ $1 == "$(basename "$folder")"* ]]; then
      printf '%s\n' "$folder"
      return 0
    fi
  done
}

# fuzz_one PROGRAM SECONDS LEAST CORPUS: one fuzz target; prints its executions.
fuzz_one() {
  local program=$1 seconds=$2 least=$3 seeds=$4 name work runs
  name=$(basename "$program")
  work="$(dirname "$program")/$name.work"
  mkdir -p "$work/corpus" "$work/found"
  rm -f "$work/passed"
  local -a inputs=("$work/corpus")
  [[ -z $seeds ]] || inputs+=("$seeds")
  local -a options=()
  [[ -z $seeds || ! -f $seeds.dict ]] || options+=("-dict=$seeds.dict")
  if ! "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$work/found/" "${options[@]}" "${inputs[@]}" >"$work/log" 2>&1; then
    tail -n 40 "$work/log"
    printf '%s: FAILED; its input is in %s\n' "$name" "$work/found"
    return 1
  fi
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/log")
  printf '%s: %s executions in %s s\n' "$name" "${runs:-0}" "$seconds"
  if ((${runs:-0} < least)); then
    printf '%s: FAILED: fewer than %s executions\n' "$name" "$least"
    return 1
  fi
  touch "$work/passed"
}

# fuzz_stage BUILD SECONDS LEAST: every fuzz target, as many at a time as there are cores.
fuzz_stage() {
  local dir=$1 seconds=$2 least=$3 program status=0
  local -a programs
  mapfile -t programs < <(find "$dir/tests/fuzz" -maxdepth 1 -type f -name 'fuzz_*' -perm -u+x | sort)
  if ((${#programs[@]} == 0)); then
    say "there is no fuzz target in $dir"
    return 1
  fi
  for program in "${programs[@]}"; do
    while (($(jobs -rp | wc -l) >= jobs)); do
      wait -n || true
    done
    fuzz_one "$program" "$seconds" "$least" "$(seeds_for "$(basename "$program" | sed 's/^fuzz_//')")" &
  done
  wait
  for program in "${programs[@]}"; do
    if [[ -f $program.work/passed ]]; then
      count 1 0 0
    else
      count 1 1 0
      status=1
    fi
  done
  return "$status"
}
