// Runs whose truth is known: steps that depend on the one before, and runs that differ from one another.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "launch/verdict/contrast.h"

namespace consist::test {

struct Noise {
  double run = 0.03;         ///< standard deviation between runs, of logarithms
  double step = 0.02;        ///< of a step about its run
  double correlation = 0.8;  ///< of a step with the one before
  double drift = 0;          ///< of the machine from the first run to the last, of logarithms
  int steps = 40;
};

/// A run that takes `seconds` a step but for the noise. `place`: 0 for the first run of all, 1 for the last.
inline launch::MeasuredRun made_run(std::mt19937_64& random, double seconds, const Noise& noise, double place) {
  std::normal_distribution<double> normal;
  const double offset = noise.run * normal(random) + noise.drift * place;
  launch::MeasuredRun run{.began = 1000 * place};
  double state = normal(random);
  for (int i = 0; i < noise.steps; ++i) {
    state = noise.correlation * state + std::sqrt(1 - noise.correlation * noise.correlation) * normal(random);
    run.steps.push_back(seconds * std::exp(offset + noise.step * state));
  }
  std::vector<double> sorted = run.steps;
  std::nth_element(sorted.begin(), sorted.begin() + noise.steps / 2, sorted.end());
  run.value = 1 / sorted[static_cast<std::size_t>(noise.steps / 2)];
  return run;
}

struct MadeSides {
  std::vector<launch::MeasuredRun> a, b;
};

/// `runs` a side; B is as many times as fast as A. By turns (A B B A ...), or all of A first.
inline MadeSides made_sides(std::mt19937_64& random, int runs, double faster, const Noise& noise, bool turns) {
  MadeSides sides;
  for (int i = 0; i < 2 * runs; ++i) {
    const bool is_b = turns ? i % 4 == 1 || i % 4 == 2 : i >= runs;
    const double place = static_cast<double>(i) / std::max(1, 2 * runs - 1);
    (is_b ? sides.b : sides.a).push_back(made_run(random, is_b ? 1 / faster : 1, noise, place));
  }
  return sides;
}

}  // namespace consist::test
