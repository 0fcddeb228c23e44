"""Agents of tests: what they reply is written down in the test."""

from palestra.agents.scripted import ScriptedAgent


class Says(ScriptedAgent):
    """Says one line after the other. `lines` is shared by all episodes."""

    def __init__(self, context, lines):
        super().__init__(context)
        self.lines = lines

    async def reply(self, sampling):
        return self.lines.pop(0)
