// The texts that other ranks have given to collectives, until they are taken.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <string>
#include <string_view>

namespace consist {

/// Texts by name and giver, first in, first out. THREADS: one at a time.
class Inbox {
 public:
  void add(std::string_view name, int from, std::string_view bytes, bool last);
  bool has(std::string_view name, int from) const;
  std::string take(std::string_view name, int from);  ///< REQUIRES has()
  bool empty() const noexcept { return texts_.empty(); }

 private:
  struct Texts {
    std::deque<std::string> whole;
    std::string begun;  // whose last part has not come
  };
  std::map<std::string, std::map<int, Texts>, std::less<>> texts_;
};

}  // namespace consist
