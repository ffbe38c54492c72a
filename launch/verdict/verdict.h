// The verdict on two sides: faster, slower, the same within a margin, or cannot be told.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/verdict/contrast.h"
#include "launch/verdict/differences.h"
#include "launch/verdict/reason.h"
#include "launch/verdict/side.h"

namespace consist::launch {

/// Fractions, not percent.
struct VerdictRequest {
  double confidence = 0.95;
  double within = 0.02;              ///< the margin in which two speeds, memories or energies are the same
  std::optional<double> slower;      ///< B may be slower by so much
  std::optional<double> run_spread;  ///< standard deviation between runs where there are too few; empty: by the device
};

enum class Call {
  better,   ///< B is faster, takes less, has the lower loss: the interval ends short of 1
  worse,    ///< the opposite
  same,     ///< the interval lies in the margin
  unclear,  ///< none of these, or there is no interval
};

struct Judgement {
  std::string quantity;             ///< "speed", "memory", "loss", "energy"
  std::string unit;                 ///< of a and b: "tokens/s", "B", "nat/token", "J per billion tokens"
  double a = unknown, b = unknown;  ///< NaN: not measured
  Contrast contrast;
  double within = 0;
  Call call = Call::unclear;
  bool comparable = true;  ///< false: the difference may have another reason than what is judged; `problem` says which
  std::string problem;     ///< why it cannot be told
  std::string assumption;  ///< on which the interval stands
  std::int64_t first_step = 0, last_step = 0;  ///< of the loss
};

/// Call of an interval, of a quantity of which more is better or worse.
Call call_of(const Contrast& contrast, double within, bool more_is_better);

/// Words for a call: "faster", "slower", "the same within 2%", "cannot be told"; for memory "less", "more".
std::string word_of(const Judgement& judgement);

/// Sentence on the assumption of a method.
std::string assumption_of(Method method);

struct Verdict {
  Side a, b;
  VerdictRequest request;
  std::vector<Difference> differences;
  std::vector<Judgement> judgements;  ///< speed, memory, loss, energy
  SpeedReason reason;
  std::string residual_a, residual_b;  ///< predicted beside measured, a line each; empty: nothing can be said
  bool turns = false;  ///< the runs of the two were made by turns
  std::vector<std::string> notes;

  const Judgement& speed() const { return judgements.front(); }
  /// 0 without VerdictRequest::slower; with it 0: B is not slower by more, 1: it is, 3: cannot be told.
  int exit_status() const;
};

/// Judges B against A. Throws as read_outcome() for timelines that cannot be read; without `with_reason` none is read.
Verdict judge(Side a, Side b, const VerdictRequest& request, bool with_reason = true);

}  // namespace consist::launch
