package chat

func (r *Renderer) deepSeekV4(req *request, p *Prompt) error { return remote("not yet") }
