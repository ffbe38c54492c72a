#include "consist/dtype.h"

#include <array>
#include <utility>

namespace consist {
namespace {
constexpr std::array<std::pair<DType, std::string_view>, 6> names = {{{DType::f32, "f32"},
                                                                      {DType::bf16, "bf16"},
                                                                      {DType::e4m3, "e4m3"},
                                                                      {DType::e5m2, "e5m2"},
                                                                      {DType::i32, "i32"},
                                                                      {DType::u8, "u8"}}};
}  // namespace

std::string_view name_of(DType type) noexcept {
  for (const auto& [candidate, name] : names) {
    if (candidate == type) return name;
  }
  return "?";
}

std::optional<DType> dtype_of(std::string_view name) noexcept {
  for (const auto& [type, candidate] : names) {
    if (candidate == name) return type;
  }
  return std::nullopt;
}

}  // namespace consist
