#include <fmt/format.h>

#include "draw/canvas.h"
#include "draw/escape.h"

namespace redline::draw {

namespace {

std::string svg_color(const char* what, Color c) {
  std::string out = fmt::format("{}=\"#{:02x}{:02x}{:02x}\"", what, c.red, c.green, c.blue);
  if (c.opacity < 1.0) out += fmt::format(" {}-opacity=\"{:.3g}\"", what, c.opacity);
  return out;
}

class SvgCanvas : public Canvas {
 public:
  SvgCanvas(double width, double height, const std::string& title) {
    body_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:g} {1:g}\" width=\"{0:g}\" height=\"{1:g}\" "
        "role=\"img\" "
        "font-family=\"system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, "
        "sans-serif\">\n<title>{2}</title>\n",
        width, height, escape_html(title));
  }
  void rectangle(Point corner, double width, double height, Color fill) override {
    body_ += fmt::format("<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" {}/>\n", corner.x,
                         corner.y, width, height, svg_color("fill", fill));
  }
  void path(const std::vector<Point>& points, double width, Color stroke, bool dashed) override {
    if (points.size() < 2) return;
    body_ += "<polyline points=\"";
    for (const Point& p : points) body_ += fmt::format("{:.2f},{:.2f} ", p.x, p.y);
    body_.back() = '"';
    body_ += fmt::format(
        " fill=\"none\" {} stroke-width=\"{:.3g}\" stroke-linejoin=\"round\" stroke-linecap=\"round\"{}/>\n",
        svg_color("stroke", stroke), width, dashed ? " stroke-dasharray=\"5 4\"" : "");
  }
  void dot(Point center, double radius, Color fill) override {
    body_ += fmt::format("<circle cx=\"{:.2f}\" cy=\"{:.2f}\" r=\"{:.2f}\" {}/>\n", center.x, center.y, radius,
                         svg_color("fill", fill));
  }
  void text(Point at, const std::string& words, const TextStyle& style) override {
    const char* anchor = style.anchor == Anchor::Start ? "start" : style.anchor == Anchor::Middle ? "middle" : "end";
    body_ += fmt::format("<text x=\"{:.2f}\" y=\"{:.2f}\" font-size=\"{:g}\" text-anchor=\"{}\" {}{}>{}</text>\n", at.x,
                         at.y, style.size, anchor, svg_color("fill", style.color),
                         style.bold ? " font-weight=\"600\"" : "", escape_html(words));
  }
  std::string finish() override { return body_ + "</svg>\n"; }

 private:
  std::string body_;
};

}  // namespace

std::unique_ptr<Canvas> make_svg(double width, double height, const std::string& title) {
  return std::make_unique<SvgCanvas>(width, height, title);
}

}  // namespace redline::draw
