"""TextCraft: Minecraft's recipes as a crafting game, ours and the original's."""
