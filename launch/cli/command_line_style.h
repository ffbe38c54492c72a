// Style of command lines, the same for every command.
#pragma once

#include <boost/program_options.hpp>

namespace consist {

/// Long options alone, and none by a part of its name.
constexpr auto command_line_style = boost::program_options::command_line_style::unix_style &
                                    ~boost::program_options::command_line_style::allow_guessing &
                                    ~boost::program_options::command_line_style::allow_short;

}  // namespace consist
