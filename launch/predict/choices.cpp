#include "launch/predict/choices.h"

#include "core/config/option_table.h"

namespace consist::launch {

std::string text_of(const Choices& choices) {
  std::string text;
  for (const Choice& choice : choices) text += (text.empty() ? "--" : " --") + choice.option + " " + choice.value;
  return text;
}

void apply(const Choices& choices, RunConfig& config) {
  for (const Choice& choice : choices) {
    if (const std::size_t dot = choice.option.find('.'); dot != std::string::npos) {
      config.plugin_options[choice.option.substr(0, dot)][choice.option.substr(dot + 1)] = choice.value;
    } else {
      set_option(config, *find_run_option(choice.option), choice.value, "--" + choice.option);
    }
  }
}

}  // namespace consist::launch
