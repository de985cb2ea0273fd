package chat

func (r *Renderer) harmony(req *request, p *Prompt) error { return remote("not yet") }
