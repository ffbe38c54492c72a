// Texts of any length by way of the job's store, whose values are short.
#pragma once

#include <string>
#include <string_view>

#include "consist/job.h"

namespace consist {

/// Makes `text` known under `key`, which is used once in a job. Does not wait.
void put_long_text(Job& job, const std::string& key, std::string_view text);
/// Waits for what some rank puts under that key. Throws as Job::get.
std::string get_long_text(Job& job, const std::string& key);

}  // namespace consist
