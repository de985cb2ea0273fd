package learn

// A Mean is a running mean with a bounded memory, so that it can follow.
type Mean struct {
	sum, n float64
}

// Add takes v into the mean of about the last memory values.
func (m *Mean) Add(v, memory float64) {
	if m.n >= memory {
		m.sum -= m.sum / m.n
		m.n--
	}
	m.sum += v
	m.n++
}

// Or returns the mean, and start while there is none.
func (m *Mean) Or(start float64) float64 {
	if m.n == 0 {
		return start
	}
	return m.sum / m.n
}

// Weight returns how many values the mean is of, about.
func (m *Mean) Weight() float64 { return m.n }
