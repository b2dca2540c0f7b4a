# SPDX-License-Identifier: Apache-2.0
# Completion of memstrata for bash. Needs nothing but bash 4.
# shellcheck shell=bash

# _memstrata_options COMMAND [SUBCOMMAND]: its options, one a line or many; the tests hold them against the help.
_memstrata_options() {
  case "$*" in
    replay)
      echo '--help --trace --requests --skip-bad --hit-curve --model --layers --kv-heads --head-dim --window' \
        '--sliding-layers --latent-dim --rope-dim --dtype --scale --policy --backing --limit --granule --context' \
        '--cache-blocks --find-limit --prefill-tps --decode-tps --verify --corrupt --inject --seed --json --html --record'
      ;;
    trace) echo '--help' ;;
    'trace import') echo '--help --output --skip-bad' ;;
    'trace synth')
      echo '--help --seed --sessions --scale --session-gap-ms --max-input-tokens --tenants --output'
      ;;
    'trace info') echo '--help --requests --hit-curve --json --skip-bad' ;;
    probe) echo '--help --json --no-measure' ;;
    bench) echo '--help --list --rounds --check --json' ;;
    'bench replay-raw') echo '--help --json' ;;
  esac
}

# _memstrata_values OPTION: the words that may follow it; empty for a number or a size; "FILE" for a file.
_memstrata_values() {
  case "$1" in
    --trace | --json | --html | --record | --output | -o) echo 'FILE' ;;
    --model)
      echo 'Llama-3-8B Llama-3-70B Llama-3.1 Llama-3.1-8B Qwen2.5-7B Qwen3-8B Qwen3-32B Mistral-7B gpt-oss-20b' \
        'Gemma-3-270M Gemma-3-27B SmolLM2-135M DeepSeek-V3'
      ;;
    --policy) echo 'all reserve-max realloc concat paged virtual' ;;
    --backing) echo 'real sim' ;;
    --dtype) echo 'f32 f16 bf16 fp8 int8' ;;
    --prefill-tps) echo 'inf' ;;
    --granule) echo '64KiB 2MiB' ;;
    --hit-curve | --requests | --layers | --kv-heads | --head-dim | --window | --sliding-layers | --latent-dim | \
      --rope-dim | --scale | --limit | --context | --cache-blocks | --find-limit | --decode-tps | --corrupt | --inject | --seed | \
      --sessions | --session-gap-ms | --max-input-tokens | --tenants | --rounds) ;;
    *) return 1 ;;
  esac
}

# The subcommands of a command.
_memstrata_subcommands() {
  case "$1" in
    '') echo 'replay trace probe bench help' ;;
    help) echo 'replay trace probe bench' ;;
    trace) echo 'import synth info' ;;
    bench) echo 'replay-raw' ;;
  esac
}

_memstrata_files() {
  compopt -o filenames 2>/dev/null
  mapfile -t COMPREPLY < <(compgen -f -- "$1")
}

_memstrata() {
  local current=${COMP_WORDS[COMP_CWORD]}
  local previous=${COMP_WORDS[COMP_CWORD - 1]}
  local command='' sub='' word values
  COMPREPLY=()
  # What stands before the cursor names the command and, below trace and bench, a subcommand.
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    if [[ -z $command && $word != -* ]]; then
      command=$word
    elif [[ -n $command && -z $sub && " $(_memstrata_subcommands "$command") " == *" $word "* ]]; then
      sub=$word
    fi
  done
  if values=$(_memstrata_values "$previous") && [[ -n $command ]]; then
    if [[ $values == FILE ]]; then
      _memstrata_files "$current"
    elif [[ $previous == --policy && $current == *,* ]]; then
      mapfile -t COMPREPLY < <(compgen -P "${current%,*}," -W "$values" -- "${current##*,}")
    elif [[ -n $values ]]; then
      mapfile -t COMPREPLY < <(compgen -W "$values" -- "$current")
    fi
    return
  fi
  if [[ -z $command ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_memstrata_subcommands '') --help --version" -- "$current")
  elif [[ $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_memstrata_options "$command" ${sub:+"$sub"})" -- "$current")
  elif [[ -z $sub && -n $(_memstrata_subcommands "$command") ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_memstrata_subcommands "$command")" -- "$current")
  elif [[ $command != help && $command != probe ]]; then
    _memstrata_files "$current"
  fi
}

complete -F _memstrata memstrata
