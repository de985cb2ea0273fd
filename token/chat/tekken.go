package chat

func (r *Renderer) tekken(req *request, p *Prompt) error { return remote("not yet") }
