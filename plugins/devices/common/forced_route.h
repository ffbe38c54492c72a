// The experts that a token is sent to by its id, where a load is stated (moe_route in docs/ops.md); for processors and GPUs.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define CONSIST_HERE __host__ __device__
#else
#define CONSIST_HERE
#endif

namespace consist::kernels {

/// Intervals of [0, choices), one an expert, as they lie in one of several orders of the experts.
struct ForcedRoute {
  const float* ends;    ///< upper ends of the intervals, [experts], rising
  const float* owners;  ///< the experts that have them, [experts]
  float place;  ///< of the token in [0, 1): a multiple of 2^-16, so that it is exact behind any choice that is added to it
};

/// The route of a token with this id, for a router; `intervals`: [orders, 2, experts].
CONSIST_HERE inline ForcedRoute forced_route(const float* intervals, int orders, int experts, std::int32_t id,
                                             std::uint32_t router) {
  std::uint32_t h = static_cast<std::uint32_t>(id) * 0x9E3779B9U + router * 0x85EBCA77U;
  h = (h ^ (h >> 16)) * 0x85EBCA6BU;
  h = (h ^ (h >> 13)) * 0xC2B2AE35U;
  h ^= h >> 16;
  const float* const ends =
      intervals + static_cast<std::int64_t>((h & 0xFFFFU) % static_cast<std::uint32_t>(orders)) * 2 * experts;
  return {ends, ends + experts, static_cast<float>(h >> 16) / 65536.0F};
}

/// The interval that holds the token's place + `choice`; behind `before`, the interval of the choice before (-1: none), and with
/// as many left as choices follow, whatever ends are rounded to.
CONSIST_HERE inline int forced_interval(const ForcedRoute& route, int experts, int choice, int choices, int before) {
  const float wanted = route.place + static_cast<float>(choice);
  int low = before + 1, high = experts - (choices - choice);
  while (low < high) {
    const int middle = (low + high) / 2;
    if (route.ends[middle] > wanted)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

}  // namespace consist::kernels

#undef CONSIST_HERE
