#include "launch/verdict/amounts.h"

#include <charconv>
#include <cmath>

#include "consist/error.h"
#include "consist/text.h"

namespace consist::launch {

double percent_of(const std::string& option, const std::string& text, double low, double high) {
  double percent = 0;
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, percent);
  const bool is_percent = error == std::errc() && std::string(stopped, end) == "%" && std::isfinite(percent);
  const double fraction = percent / 100;
  if (is_percent && fraction > low && fraction < high) return fraction;
  throw UsageError("--" + option + " is " + in_quotes(text) + "; it must be a percentage between " + fixed_text(100 * low, 0) +
                   "% and " + fixed_text(100 * high, 0) + "%, such as " + (low > 0 ? "95%" : "2%"));
}

double seconds_of(const std::string& option, const std::string& text) {
  double amount = 0;
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, amount);
  const std::string unit(stopped, end);
  const double factor = unit == "s" ? 1 : unit == "min" ? 60 : unit == "h" ? 3600 : 0;
  if (error == std::errc() && std::isfinite(amount) && amount > 0 && factor > 0) return amount * factor;
  throw UsageError("--" + option + " is " + in_quotes(text) + "; it must be a duration with its unit, such as 90s, 10min or 2h");
}

}  // namespace consist::launch
