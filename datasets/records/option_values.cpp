#include "datasets/records/option_values.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "consist/error.h"

namespace consist::records {

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> items;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    items.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return items;
}

std::optional<std::tm> day_of(const std::string& date, const std::string& option) {
  if (date.empty()) return std::nullopt;
  int year = 0, month = 0, day = 0;
  char more = 0;
  using namespace std::chrono;
  const bool is_read = std::sscanf(date.c_str(), "%4d-%2d-%2d%c", &year, &month, &day, &more) == 3;
  const year_month_day whole{std::chrono::year(year), std::chrono::month(static_cast<unsigned>(month)),
                             std::chrono::day(static_cast<unsigned>(day))};
  if (!is_read || !whole.ok() || year < 1900)
    throw UsageError("--" + option + " is '" + date + "'; it must be a day such as 2024-07-26");
  std::tm time{};
  time.tm_year = year - 1900;
  time.tm_mon = month - 1;
  time.tm_mday = day;
  time.tm_wday = static_cast<int>(weekday(whole).c_encoding());
  time.tm_yday = static_cast<int>((sys_days(whole) - sys_days(std::chrono::year(year) / January / 1)).count());
  return time;
}

}  // namespace consist::records
