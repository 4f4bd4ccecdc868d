// What the terminal is like.
#pragma once

namespace redline::app {
int terminal_width();   // of stdout; COLUMNS or 100 when it is no terminal
int terminal_height();  // of stdout; 0 when it is no terminal
}  // namespace redline::app
