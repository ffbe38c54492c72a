// --json: standard output for programs. What each command prints: docs/json.md.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "consist/observer.h"

namespace consist::launch {

/// Standard output is for JSON alone from here on: what is printed for people goes to standard error. Of several ranks only the
/// one that `speaks` prints any. Called once, before anything is printed.
void begin_json_output(bool speaks = true);

/// Gives standard output back, for processes that this one is about to start. Events are printed as before.
void give_back_standard_output();

/// Prints an object on a line of its own, at once. Numbers that are not finite become null, bytes that are no UTF-8 are replaced.
/// Does nothing before begin_json_output(), and in processes that do not speak. Any thread.
void print_event(const nlohmann::ordered_json& event);

/// The same for a document of several lines, and for one that is text already, with its last line's end.
void print_document(const nlohmann::ordered_json& document);
void print_json(const std::string& document);

/// Prints {"event": "error"} for what ended the command, one whose --json was not read yet too.
void print_error_event(const std::string& message, int status);

/// The events of a run of training.
class JsonObserver final : public Observer {
 public:
  JsonObserver(int ranks, std::string archive) : ranks_(ranks), archive_(std::move(archive)) {}

  void begin(const ObservedRun& run) override;
  void step(const ObservedStep& step) override;
  void evaluated(const ObservedEvaluation& evaluation) override;
  void sample(std::int64_t step, std::string_view text) override;
  void checkpoint(std::int64_t step, std::string_view folder) override;
  void result(std::string_view json) override;
  void end(std::string_view status, std::string_view reason) override;

  /// Prints the result of a run that had nothing left to do.
  void nothing_left();

 private:
  int ranks_;
  std::string archive_, result_;
  std::int64_t tokens_ = 0;  // of a step
  bool began_ = false;
};

}  // namespace consist::launch
