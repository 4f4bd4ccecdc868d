// A rectangle of a page with axes, on any canvas: maps data to the page and draws curves, dots, bars, levels and a
// legend.
#pragma once

#include <string>
#include <vector>

#include "draw/canvas.h"

namespace redline::draw {

// On white.
inline constexpr Color kInk{31, 41, 55}, kQuiet{107, 114, 128}, kGrid{229, 231, 235}, kBlue{37, 99, 235},
    kTeal{13, 148, 136}, kAmber{217, 119, 6}, kViolet{124, 58, 237}, kGrey{156, 163, 175}, kRed{220, 38, 38};

struct Series {
  std::string name;
  Color color;
  std::vector<Point> points;  // data coordinates
};

// axes() comes first: everything else is placed by them. The canvas must outlive the panel.
class Panel {
 public:
  Panel(Canvas& canvas, Point corner, double width, double height, const std::string& title);
  void axes(double x_low, double x_high, double y_low, double y_high, bool x_labels = true);
  void curve(const Series& series);                // with a dot where it ends
  void dots(const Series& series, double radius);  // points on their own
  void legend(const std::vector<Series>& list);    // above the panel, from the right
  void bar(double center, double width, double value, Color color);
  void shade(double from, double to, Color color);  // of x
  void level(double value, const std::string& words);
  void note(double x, const std::string& words);  // below the axis
  void empty(const std::string& words);           // instead of axes

 private:
  Point place(Point p) const;

  Canvas& canvas_;
  double left_, top_, width_, height_;
  double x_low_ = 0, x_high_ = 1, y_low_ = 0, y_high_ = 1;
};

}  // namespace redline::draw
