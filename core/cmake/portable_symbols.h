// Asks for the older of a symbol's two versions (ConsistPortable.cmake). Included by the compiler's command line.
#pragma once

__asm__(
    ".symver _ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE,"
    "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE@GLIBCXX_3.4.11");
