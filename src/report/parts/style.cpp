#include "report/parts/style.h"

namespace redline::report {

std::string_view style_sheet() {
  return R"css(
:root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--dim:#5c6670;--line:#dfe3e8;--card:#f6f8fa;
--c0:#8a94a0;--c1:#b08bd6;--c2:#2f7ed8;--c3:#e0533d;--c4:#c77f00;--c5:#2a9d63;--c6:#5fb3c9;--c7:#d667a8;--c8:#7a8f2b;--c9:#96603c;--c10:#c3cad2;--c11:#444}
@media (prefers-color-scheme:dark){:root{--bg:#14171b;--fg:#e6e9ed;--dim:#9aa4af;--line:#2c323a;--card:#1d2228;
--c0:#76818d;--c1:#b99be0;--c2:#5b9ff0;--c3:#f0745f;--c4:#e0a030;--c5:#4cc389;--c6:#78c9de;--c7:#e889c0;--c8:#a3b84c;--c9:#c08a62;--c10:#4a525c;--c11:#bbb}}
*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,"Segoe UI",Roboto,"Noto Sans",sans-serif}
main{max-width:78rem;margin:0 auto;padding:1.2rem}h1{font-size:1.5rem;margin:.2rem 0}h2{font-size:1.15rem;margin:2rem 0 .5rem;border-bottom:1px solid var(--line)}
.summary{font-size:1.15rem;background:var(--card);border-left:4px solid var(--c2);padding:.8rem 1rem;border-radius:4px}
.grid2{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:1rem}
img{max-width:100%;height:auto}figure{margin:0 0 1rem;background:var(--card);border-radius:6px;padding:.6rem .8rem}figcaption{font-weight:600;margin-bottom:.3rem}
svg{width:100%;height:auto;display:block}svg text{font-size:13px;fill:var(--dim)}.end{text-anchor:end}.mid{text-anchor:middle}
.grid{stroke:var(--line)}.faint{opacity:.28;stroke-width:1}.band{opacity:.18}.h{fill:transparent}.h:hover{fill:var(--fg);opacity:.08}
h3{font-size:1rem;margin:1.2rem 0 .2rem}.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(11rem,1fr));gap:.6rem;margin:.8rem 0 1rem}
.tile{background:var(--card);border-radius:6px;padding:.6rem .8rem;border-top:3px solid var(--c5);overflow-wrap:anywhere}.tile.bad{border-top-color:var(--c3)}
.tile span,.tile small{display:block;color:var(--dim);font-size:.82rem}.tile b{display:block;font-size:1.25rem;line-height:1.3;font-variant-numeric:tabular-nums}
.axes>input{position:absolute;opacity:0}.axes>label{display:inline-block;padding:.25rem .8rem;margin:0 .4rem .8rem 0;border:1px solid var(--line);border-radius:1rem;cursor:pointer;font-size:.9rem}
.axes>input:checked+label{background:var(--c2);border-color:var(--c2);color:#fff}.axes>input:focus-visible+label{outline:2px solid var(--fg)}.axes>.grid2{display:none}
#axis-step:checked~.by-step,#axis-samples:checked~.by-samples,#axis-time:checked~.by-time{display:grid}
.bar{display:grid;grid-template-columns:minmax(4rem,13rem) 1fr 5.5rem;gap:0 .6rem;align-items:center;min-height:1.75rem;font-size:.88rem}
.bar .name{color:var(--dim);text-align:right;overflow-wrap:anywhere;line-height:1.2}.bar .total{font-variant-numeric:tabular-nums;white-space:nowrap}
.track{display:flex;height:1.25rem}.track i{display:block;height:100%}.track i:first-child{border-radius:3px 0 0 3px}.track i:last-child{border-radius:0 3px 3px 0}
.line{position:relative;display:block}.line i,.line b{position:absolute;border-radius:0!important}.line .box{top:.2rem;height:.85rem;opacity:.85}
.line .zero{width:1px;background:var(--dim)}.line .whisker{top:.58rem;height:2px;background:var(--fg)}.line .marker{width:3px;background:var(--c4);margin-left:-1px}
.axis b{font-weight:400;font-size:.78rem;color:var(--dim);transform:translateX(-50%);white-space:nowrap}.axis b:first-child{transform:none}.axis b:last-child{transform:translateX(-100%)}
.legend{color:var(--dim);font-size:.85rem;margin:.4rem 0 0;display:flex;flex-wrap:wrap;gap:.1rem 1rem}.key{display:inline-block;width:.75em;height:.75em;border-radius:2px;margin-right:.35em}
.mark{background:var(--c4)}.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.92rem}
th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid var(--line);vertical-align:top}td.n{text-align:right;font-variant-numeric:tabular-nums}
table code{overflow-wrap:anywhere}th{white-space:nowrap}td{max-width:34rem;overflow-wrap:anywhere}td.why{min-width:13rem}td.n{white-space:nowrap}
code{font-family:ui-monospace,"DejaVu Sans Mono",monospace;font-size:.88em}pre code,p code{overflow-wrap:anywhere}.dim{color:var(--dim)}
details{margin:.6rem 0}summary{cursor:pointer;font-weight:600}footer{color:var(--dim);font-size:.85rem;margin:2rem 0 1rem}
polyline{fill:none;stroke-width:1.6;vector-effect:non-scaling-stroke}
.c0{background:var(--c0)}.c1{background:var(--c1)}.c2{background:var(--c2)}.c3{background:var(--c3)}.c4{background:var(--c4)}.c5{background:var(--c5)}.c6{background:var(--c6)}.c7{background:var(--c7)}.c8{background:var(--c8)}.c9{background:var(--c9)}.c10{background:var(--c10)}.c11{background:var(--c11)}
.f0{fill:var(--c0)}.f1{fill:var(--c1)}.f2{fill:var(--c2)}.f3{fill:var(--c3)}.f4{fill:var(--c4)}.f5{fill:var(--c5)}.f6{fill:var(--c6)}.f7{fill:var(--c7)}.f8{fill:var(--c8)}.f9{fill:var(--c9)}.f10{fill:var(--c10)}.f11{fill:var(--c11)}
.s0{stroke:var(--c0)}.s1{stroke:var(--c1)}.s2{stroke:var(--c2)}.s3{stroke:var(--c3)}.s4{stroke:var(--c4)}.s5{stroke:var(--c5)}.s6{stroke:var(--c6)}.s7{stroke:var(--c7)}.s8{stroke:var(--c8)}.s9{stroke:var(--c9)}.s10{stroke:var(--c10)}.s11{stroke:var(--c11)}
@media (max-width:52rem){thead{display:none}table,tbody,tr,td{display:block;max-width:100%}tr{background:var(--card);border-radius:6px;padding:.4rem .6rem;margin:.5rem 0}
td,td.n,td.why{border:0;padding:.15rem 0;text-align:left;min-width:0;white-space:normal}td::before{content:attr(data-label) " ";color:var(--dim);font-size:.82rem;margin-right:.3rem}td.none{display:none}.scroll{overflow-x:visible}pre{overflow-x:auto}}
@media (max-width:40rem){.tiles{grid-template-columns:repeat(auto-fit,minmax(9rem,1fr))}.bar{grid-template-columns:1fr 5rem}.bar .name{grid-column:1/3;text-align:left;margin-top:.3rem}.axis .name{display:none}main{padding:.7rem}th,td{padding:.25rem .35rem}h1{font-size:1.25rem}}
)css";
}

}  // namespace redline::report
