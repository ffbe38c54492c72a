// A verdict as text: for terminals, and as Markdown for the comment of a pull request.
#pragma once

#include <string>

#include "launch/verdict/verdict.h"

namespace consist::launch {

/// "-3.1%", from a ratio.
std::string change_text(double ratio);
/// Sentence on one quantity: "B is slower than A by 3.1% (95% interval: 1.9% to 4.3%)"; "speed cannot be told: ...".
std::string sentence_of(const Judgement& judgement, double confidence);
/// Sentence on --slower and the exit status; empty without it.
std::string gate_text(const Verdict& verdict);

/// Lines, each with its end. What makes the sides incomparable stands first.
std::string verdict_text(const Verdict& verdict);
std::string verdict_markdown(const Verdict& verdict);

}  // namespace consist::launch
