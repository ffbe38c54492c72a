// The scripts that shells source. They hold no option: at each key they ask the program that is being completed.
#include "consist/error.h"
#include "launch/cli/complete.h"

namespace consist::launch {
namespace {

constexpr const char* bash =
    R"SCRIPT(# Completion of consist in bash: eval "$(consist completion bash)", or a file in share/bash-completion/completions.
_consist() {
  local program=${COMP_WORDS[0]} typed=${COMP_WORDS[COMP_CWORD]} line open='' files='' folders=''
  [[ $program == '~/'* ]] && program=$HOME${program:1}
  [[ $typed == '=' ]] && typed=''
  COMPREPLY=()
  while IFS= read -r line; do
    case $line in
      :open) open=yes ;;
      :files) files=yes ;;
      :folders) folders=yes ;;
      *) COMPREPLY+=("$line") ;;
    esac
  done < <("$program" complete bash "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  if [[ $files || $folders ]]; then
    compopt -o filenames 2>/dev/null
    while IFS= read -r line; do
      COMPREPLY+=("$line")
    done < <(if [[ $files ]]; then compgen -f -- "$typed"; else compgen -d -- "$typed"; fi)
  fi
  if [[ $open ]]; then compopt -o nospace 2>/dev/null; fi
  return 0
}
complete -F _consist consist
)SCRIPT";

constexpr const char* zsh = R"SCRIPT(#compdef consist
# Completion of consist in zsh: a file _consist in a folder of $fpath, or source <(consist completion zsh) behind compinit.
_consist() {
  local line open files folders
  local -a found
  for line in "${(@f)$("${words[1]/#\~/$HOME}" complete zsh "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
    case $line in
      :open) open=yes ;;
      :files) files=yes ;;
      :folders) folders=yes ;;
      '') ;;
      *) found+=("$line") ;;
    esac
  done
  if [[ -n $open ]]; then
    compadd -S '' -a found
  else
    compadd -a found
  fi
  if [[ -n $files ]]; then
    _files
  elif [[ -n $folders ]]; then
    _files -/
  fi
}
if [[ $funcstack[1] == _consist ]]; then
  _consist "$@"
else
  compdef _consist consist
fi
)SCRIPT";

constexpr const char* fish =
    R"SCRIPT(# Completion of consist in fish: consist completion fish > ~/.config/fish/completions/consist.fish
function __consist_complete
    set -l words (commandline -opc)
    set -l typed (commandline -ct)
    for line in ($words[1] complete fish $words[2..-1] "$typed" 2>/dev/null)
        switch $line
            case ':open'
            case ':files'
                __fish_complete_path $typed
            case ':folders'
                __fish_complete_directories $typed
            case '*'
                echo $line
        end
    end
end
complete -c consist -f -a '(__consist_complete)'
)SCRIPT";

}  // namespace

std::string completion_script(const std::string& shell) {
  if (shell == "bash") return bash;
  if (shell == "zsh") return zsh;
  if (shell == "fish") return fish;
  throw UsageError("there is no completion for '" + shell + "'; the shells are bash, zsh and fish");
}

}  // namespace consist::launch
