#include "core/passes/layer_range.h"

#include <string_view>

#include "consist/error.h"
#include "core/base/number.h"

namespace consist {
namespace {

int layer_number(std::string_view text, const std::string& malformed) {
  int layer = -1;
  if (!parse_number(text, layer) || layer < 0) throw UsageError(malformed);
  return layer;
}

}  // namespace

std::pair<int, int> parse_layers(const std::string& text, const std::string& option, const std::string& malformed) {
  const std::size_t dash = text.find('-');
  const int first = layer_number(std::string_view(text).substr(0, dash), malformed),
            last = dash == std::string::npos ? first : layer_number(std::string_view(text).substr(dash + 1), malformed);
  if (last < first) throw UsageError(option + " '" + text + "' ends before it begins");
  return {first, last};
}

}  // namespace consist
