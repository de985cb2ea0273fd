package router

import (
	"kvasir/token"
	"kvasir/token/library"
)

// newSource returns where tokens come from, by the configured mode.
func (r *Router) newSource() token.Source {
	t := &r.cfg.Tokens
	switch t.Mode {
	case "off":
		return token.None
	case "remote":
		return token.IDs(r.remote)
	}
	r.library = library.New(token.NewLocal(t.Local, r.remote, r.mismatch), t.Files, t.Template, r.log)
	return token.IDs(r.library.Local)
}

// mismatch is told when we and an engine disagree about tokens.
func (r *Router) mismatch(x token.Mismatch) {
	switch {
	case x.Restored:
		r.log.Info("tokens of this model are made here again: the latest were all equal", "model", x.Model)
	case x.Demoted:
		r.log.Error("tokens of this model differ from the engine's: they come from its engines from now on", "model", x.Model, "at", x.At, "ours", x.Ours, "theirs", x.Theirs, "body", x.Body)
	default:
		r.log.Warn("tokens differ from the engine's", "model", x.Model, "at", x.At, "ours", x.Ours, "theirs", x.Theirs, "body", x.Body)
	}
}
