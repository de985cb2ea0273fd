package report

// pageHTML is the page's template.
const pageHTML = `
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{.Title}}</title>
<style>
:root{color-scheme:light dark;--ink:#1c2430;--dim:#667085;--line:#e3e7ee;--paper:#fff;--soft:#f5f7fa}
@media(prefers-color-scheme:dark){:root{--ink:#e7ebf2;--dim:#98a2b3;--line:#303a48;--paper:#12161d;--soft:#1a202a}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);margin:0 auto;max-width:1120px;padding:28px 20px 60px}
h1{font-size:26px;margin:0 0 4px}h2{font-size:19px;margin:40px 0 2px;border-top:1px solid var(--line);padding-top:24px}h3{font-size:15px;margin:22px 0 4px}
p.note{color:var(--dim);margin:0 0 12px}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:5px 9px;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}th{color:var(--dim);font-weight:500;font-size:13px}
th:first-child,td:first-child{text-align:left}tr.best td{background:var(--soft);font-weight:600}
.dot{display:inline-block;width:10px;height:10px;border-radius:5px;margin-right:8px}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(440px,1fr));gap:18px}
svg{width:100%;height:auto;background:var(--paper)}
.grid{stroke:var(--line)}.tick{font-size:11px;fill:var(--dim)}.axis{font-size:12px;fill:var(--ink)}.line{fill:none;stroke-width:1.8}
</style></head><body>
<h1>{{.Title}}</h1>
<p class="note">Simulated by kvasir sim: the production scheduler, index, ledger and policies on modelled engines in virtual time.
Times to first token (TTFT) and of whole requests (E2E) are what clients see. Rows are sorted by mean E2E; the best is shaded.{{if .Stopped}} <b>The run was stopped before its end.</b>{{end}}</p>
{{range .Groups}}
<h2>{{.Title}}</h2><p class="note">{{.Note}}</p>
<div class="wide"><table><tr><th>policy</th><th>hit rate</th><th>TTFT mean</th><th>p50</th><th>p95</th><th>p99</th><th>E2E mean</th><th>per token</th><th>load CV</th><th>fullest</th><th>phantom</th></tr>
{{range .Rows}}<tr{{if .Best}} class="best"{{end}}><td><span class="dot" style="background:{{.Color}}"></span>{{.Policy}}</td><td>{{pct .Hit}}</td><td>{{ms .TTFT}}</td><td>{{ms .P50}}</td><td>{{ms .P95}}</td><td>{{ms .P99}}</td><td>{{ms .E2E}}</td><td>{{ms .TPOT}}</td><td>{{printf "%.2f" .CV}}</td><td>{{pct .MaxShare}}</td><td>{{pct .Phantom}}</td></tr>
{{end}}</table></div>
<div class="plots">
{{if .CDF}}<div><h3>Who waits how long</h3>{{.CDF}}</div>{{end}}
<div><h3>Hit rate against balance</h3>{{.Balance}}</div>
{{range .Loads}}<div><h3>Load per replica: {{.Policy}}</h3>{{.SVG}}</div>{{end}}
</div>
{{end}}
{{if .Scales}}<h2>Cost of scale</h2><p class="note">The same input on fleets of different size.</p><div class="plots">
{{range .Scales}}<div><h3>{{.Policy}}</h3>{{.SVG}}</div>{{end}}
</div>{{end}}
</body></html>
`
