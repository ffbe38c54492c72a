// Templates of parts: the small plugins of tests/external, which are installed with Consist and tested as they stand, with other
// names.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace consist::launch {

/// A file of an example, and its name in the new folder.
struct TemplateFile {
  const char *from, *to;
};

/// A text of the files and what stands in its place: {name} is "my-average", {snake} "my_average", {Class} "MyAverage". Each
/// occurs at least once, so that a template whose example has changed is an error instead of a part with two names.
struct Replacement {
  std::string_view from, to;
};

struct PartTemplate {
  std::string_view kind;         ///< as `consist new` calls it
  std::string_view plugin_kind;  ///< of the record
  std::string_view edit;         ///< for the README: what to change first
  std::span<const TemplateFile> files;
  std::span<const Replacement> replacements;
  std::string_view train;         ///< options of `consist train` by which the part takes part
  std::string_view check = {};    ///< options of its conformance suite
  bool has_suite = true;          ///< `consist check` has one for the kind
  std::string_view prepare = {};  ///< lines of CMake in front of the tests
  std::string_view beside = {};   ///< name of a model that is written beside it
};

std::span<const PartTemplate> part_templates();

/// The template of a kind. Throws UsageError that names all if there is none.
const PartTemplate& part_template(std::string_view kind);

}  // namespace consist::launch
