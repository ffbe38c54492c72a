// Faster configurations that fit: alternatives that were planned and simulated.
#pragma once

#include <string>
#include <vector>

#include "launch/predict/trials.h"

namespace consist::launch {

struct Advice {
  Alternative alternative;
  std::string options;          ///< as text_of() writes them for the configuration
  double speed = 1;             ///< tokens/s over those of the configuration as it is
  std::int64_t more_bytes = 0;  ///< device memory of the rank that needs the most, over that of the configuration as it is
  std::int64_t bytes = 0;       ///< ... in all
};

struct AdviceRequest {
  Room room;
  TrialLimits limits;
  double least_gain = 1.02;  ///< smaller gains are not said
};

/// The best alternative of each subject that fits and gains enough, the fastest first. Of one subject's that are within 1% of
/// its fastest it is the one that needs the least memory; one that is a part of a faster one is not said. What takes more memory
/// than the configuration must leave a tenth free.
std::vector<Advice> advise(const Plan& plan, PluginHost& host, const Prediction& base, const AdviceRequest& request);

/// All of them at once, as far as each still gains beside those before it; nothing if that is fewer than two.
std::vector<Advice> together(const Plan& plan, PluginHost& host, const Prediction& base, const std::vector<Advice>& advice,
                             const AdviceRequest& request);

/// Those that leave the training as it is.
std::vector<Advice> without_caution(std::vector<Advice> advice);

/// "--batch 4 --accumulation 2: 1.12 times as fast, 41.0 GiB more", with the alternative's caution.
std::string text_of(const Advice& advice);

}  // namespace consist::launch
